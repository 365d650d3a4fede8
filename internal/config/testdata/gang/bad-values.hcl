gang "sea" {
  template      = ddim
  gpus          = "16"
  gpu_memory    = "60 gigs"
  estimate      = "10 minutes"
  max_run       = 600
  infra_retries = 1.5
  params        = "prompt"
}
gang "lake" {
  template      = "${prompt}"
  gpus          = 8 * 8
  estimate      = "-5s"
  gpu_memory    = null
  params        = { seed = 1e999999999, seed = 2 }
}
