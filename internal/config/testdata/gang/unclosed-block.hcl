gang "sea" {
  template = "ddim"
  gpus     = 16

gang "lake" {
  template = "ddim"
  gpus     = 8
}
