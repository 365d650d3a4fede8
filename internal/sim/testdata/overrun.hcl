# A gang runs five times its estimate. The start of the gang that waits for all nodes moves, and says why; nobody is stopped, and
# the gang starts in the second that the last one ends.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "liar" {
  gpus     = 8
  duration = "300s"
  estimate = "60s"
}
gang "wide" {
  at       = "5s"
  gpus     = 16
  duration = "30s"
}
gang "small" {
  at       = "10s"
  gpus     = 8
  duration = "40s"
}
