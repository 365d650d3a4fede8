gang "sea" {
  template      = "ddim"
  gpus          = "16"
  gpu_memory    = "60 gigs"
  estimate      = "10 minutes"
  max_run       = 600
  infra_retries = 1.5
  params        = "prompt"
  tenant        = ""
}
gang "lake" {
  template      = "ddim"
  gpus          = 3000000000
  estimate      = "-5s"
  gpu_memory    = null
  params        = [1, 2]
  topology {
    require = true
  }
}
