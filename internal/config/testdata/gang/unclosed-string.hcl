gang "sea" {
  template = "ddim
  gpus     = 8

  params = {
    prompt = "a red ball"
  }
}
