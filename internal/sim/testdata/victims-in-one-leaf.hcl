# A whole leaf is wanted: all victims are in one, since half of each would help nobody.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 2 }
  }
}
tier "background" {
  min_share = 0
}
gang "low" {
  count    = 4
  tier     = "background"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "60s"
    cost    = "1s"
    restore = "2s"
  }
}
gang "urgent" {
  at       = "130s"
  tier     = "interactive"
  gpus     = 16
  duration = "20s"
  topology {
    require = "leaf"
  }
}
