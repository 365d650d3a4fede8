# Neither victim can save within the grace. The one with less to do again is stopped, and goes on from its last checkpoint.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tier "background" {
  min_share = 0
}
gang "fresh" {
  tier     = "background"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "60s"
    cost    = "30s"
    restore = "2s"
  }
}
gang "stale" {
  at       = "70s"
  tier     = "background"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "500s"
    cost    = "30s"
    restore = "2s"
  }
}
gang "urgent" {
  at       = "365s"
  tier     = "interactive"
  gpus     = 8
  duration = "20s"
}
