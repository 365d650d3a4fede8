gang "sea" {
  template = "ddim"
  gpus     = 16
  gpu_memry = "60GiB"
}
