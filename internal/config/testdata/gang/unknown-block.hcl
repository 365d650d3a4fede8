gang "sea" {
  template = "ddim"
  gpus     = 16
  topologie {
    require = "leaf"
  }
}
