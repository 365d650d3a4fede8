# Stopping the background gang would free one node of two, and the other is held by a gang that may not be stopped: nobody is.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tier "background" {
  min_share = 0
}
gang "low" {
  tier     = "background"
  gpus     = 8
  duration = "90s"
  checkpoint {
    every   = "30s"
    cost    = "0s"
    restore = "0s"
  }
}
gang "pinned" {
  gpus        = 8
  duration    = "150s"
  preemptible = false
}
gang "urgent" {
  at       = "20s"
  tier     = "interactive"
  gpus     = 16
  duration = "30s"
}
