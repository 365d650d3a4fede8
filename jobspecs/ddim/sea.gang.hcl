gang "sea" {
  template      = "ddim"
  gpus          = 16
  gpus_per_node = 8
  tier          = "production"
  estimate      = "30s"

  topology {
    require = "leaf"
  }

  params = {
    prompt = "a red ball bounces over a blue sea"
    seed   = 7
    steps  = 30
  }
}
