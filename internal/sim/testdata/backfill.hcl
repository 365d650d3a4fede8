# While the first in the order waits for all nodes, those that end before it can start go ahead, and those that do not wait.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 4 }
  }
}
gang "long" {
  gpus     = 16
  duration = "300s"
}
gang "head" {
  at       = "5s"
  gpus     = 32
  duration = "30s"
}
gang "short" {
  at       = "10s"
  gpus     = 8
  duration = "60s"
}
gang "greedy" {
  at       = "15s"
  gpus     = 8
  duration = "900s"
}
gang "just" {
  at       = "20s"
  gpus     = 8
  duration = "280s"
}
