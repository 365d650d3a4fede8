cluster {
  node "n" {}
}
gang "A" {
  gpus     = 8
  duration = "10 minutes"
}
event {
  at   = "30s"
  kind = "node_down"
  node = "m"
}
