cluster {
  node "n" {}
}
gang "A" {
  gpus     = 8
  duration = "60s"
event {
  at = "30s"
}
