# One node is wanted, and all five are full of background work. One gang is stopped, saves what it has done, and not the one that
# may not be stopped, which would be the cheapest.
cluster {
  node "n" {
    count  = 5
    fanout = { leaf = 5 }
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
gang "pinned" {
  at          = "100s"
  tier        = "background"
  gpus        = 8
  duration    = "600s"
  preemptible = false
}
gang "urgent" {
  at       = "130s"
  tier     = "interactive"
  gpus     = 8
  duration = "20s"
}
