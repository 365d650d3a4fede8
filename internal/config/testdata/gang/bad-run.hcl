gang "sea" {
  template      = "ddim"
  gpus          = 24
  gpus_per_node = 8
  elastic       = { "8" = "110s", "12" = "0s" }
  model         = "wan 2"
  preemptible   = "no"
  topology {
    segment = 2
  }
  checkpoint {
    every = "10 s"
    cost  = "-1s"
    rest  = "1s"
  }
}
gang "lake" {
  template = "ddim"
  gpus     = 8
  elastic  = { "eight" = "110s" }
  model    = ""
  topology {
    segment = 0
  }
}
gang "bay" {
  template = "ddim"
  gpus     = 8
  elastic  = ["8"]
}
