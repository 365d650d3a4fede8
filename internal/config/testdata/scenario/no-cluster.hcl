gang "A" {
  gpus     = 8
  duration = "60s"
}
queue "nightly" {
  weight = 2
}
