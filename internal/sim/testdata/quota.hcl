# A tenant at its cap waits, says so, and blocks nobody. What breaks the cap for ever is rejected.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 4 }
  }
}
tenant "small" {
  max_gpus = 16
}
gang "job" {
  count    = 3
  tenant   = "small"
  gpus     = 8
  duration = "30s"
}
gang "rest" {
  tenant   = "large"
  gpus     = 16
  duration = "30s"
}
gang "over" {
  tenant   = "small"
  gpus     = 24
  duration = "30s"
}
