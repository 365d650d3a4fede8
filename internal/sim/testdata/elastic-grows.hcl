# A gang that started small grows once the other half is free and nobody waits for it.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "holder" {
  gpus     = 8
  duration = "60s"
}
gang "train" {
  at       = "5s"
  gpus     = 16
  duration = "1000s"
  elastic  = { "8" = "1900s", "16" = "1000s" }
  checkpoint {
    every   = "30s"
    cost    = "1s"
    restore = "2s"
  }
}
