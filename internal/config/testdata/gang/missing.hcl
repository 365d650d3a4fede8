gang "sea" {
  tier = "production"
}
gang {
  template = "ddim"
  gpus     = 8
}
gang "lake" {
  template = "ddim"
  gpus     = 8
  topology {
    require = "leaf"
  }
  topology {
    prefer = "leaf"
  }
}
