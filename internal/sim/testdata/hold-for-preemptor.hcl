# Two victims need different times to save. The node that is free first is kept for the preemptor: neither those that wait nor the
# victim itself start there.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tier "background" {
  min_share = 0
}
gang "quick" {
  tier     = "background"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "60s"
    cost    = "1s"
    restore = "2s"
  }
}
gang "slow" {
  tier     = "background"
  gpus     = 8
  duration = "600s"
  checkpoint {
    every   = "60s"
    cost    = "7s"
    restore = "2s"
  }
}
gang "waiting" {
  count    = 2
  at       = "5s"
  tier     = "background"
  gpus     = 8
  duration = "60s"
}
gang "urgent" {
  at       = "130s"
  tier     = "interactive"
  gpus     = 16
  duration = "20s"
}
