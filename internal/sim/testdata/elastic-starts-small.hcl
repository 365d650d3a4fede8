# Half of what it prefers is free, and the rest is not for an hour: an elastic gang starts at once on what there is.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "holder" {
  gpus        = 8
  duration    = "3600s"
  preemptible = false
}
gang "train" {
  at       = "5s"
  gpus     = 16
  duration = "100s"
  elastic  = { "8" = "180s", "16" = "100s" }
}
