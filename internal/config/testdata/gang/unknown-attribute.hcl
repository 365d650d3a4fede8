gang "sea" {
  template = "ddim"
  gpus     = 16
  gpu_memry = "60GiB"
}

gagn "lake" {
  template  = "ddim"
}

gang "hill" {
  template  = "ddim"
  gpu_count = 4
}
