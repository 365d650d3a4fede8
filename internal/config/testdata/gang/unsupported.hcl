gang "sea" {
  template    = "ddim"
  gpus        = 16
  elastic     = { "8" = "110s", "16" = "60s" }
  model       = "wan"
  preemptible = true
  topology {
    segment = 2
  }
  checkpoint {
    every = "10s"
  }
}
