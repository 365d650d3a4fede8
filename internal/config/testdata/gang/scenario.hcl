gang "sea" {
  template = "ddim"
  count    = 3
  at       = "0s"
  every    = "1s"
  gpus     = 16
  duration = "60s"
  exit {
    member = 2
    after  = "30s"
  }
}
