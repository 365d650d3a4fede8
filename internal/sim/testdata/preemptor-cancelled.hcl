# The preemptor is cancelled when one victim is gone and the other still saves. The first starts again in that second, and the other
# carries on.
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
event {
  at   = "133s"
  kind = "cancel"
  gang = "urgent"
}
