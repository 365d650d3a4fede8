# What no idle cluster could run is rejected at once, with numbers, and holds nobody up.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 2 }
  }
}
gang "wide" {
  gpus     = 40
  duration = "10s"
}
gang "tight" {
  gpus     = 24
  duration = "10s"
  topology {
    require = "leaf"
  }
}
gang "other" {
  gpus     = 8
  duration = "10s"
  gpu      = "B200-180GB"
}
gang "fits" {
  gpus     = 8
  duration = "10s"
}
