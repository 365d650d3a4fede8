# An elastic victim gives up half of its GPUs and goes on with the rest. Evicted whole it would wait while eight GPUs idle.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tier "background" {
  min_share = 0
}
gang "train" {
  tier     = "background"
  gpus     = 16
  duration = "300s"
  elastic  = { "8" = "550s", "16" = "300s" }
  checkpoint {
    every   = "30s"
    cost    = "1s"
    restore = "2s"
  }
}
gang "urgent" {
  at       = "50s"
  tier     = "interactive"
  gpus     = 8
  duration = "40s"
}
