gang "sea" {
  template = "ddim"
  gpus     = 16
  estimate = "10 minutes"
}
