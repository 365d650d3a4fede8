# A guarantee is given back by the same or a lower tier, even where a higher one would be cheaper to stop.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tenant "owner" {
  guaranteed = 8
}
gang "chat" {
  tenant   = "other"
  tier     = "interactive"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "30s"
    cost    = "0s"
    restore = "0s"
  }
}
gang "prod" {
  tenant   = "other"
  gpus     = 8
  duration = "600s"
}
gang "own" {
  at       = "100s"
  tenant   = "owner"
  gpus     = 8
  duration = "30s"
}
