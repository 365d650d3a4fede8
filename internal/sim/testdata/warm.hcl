# Of equal nodes the one with the weights in memory is taken. The next gang loads them elsewhere, and later
# both nodes have them.
cluster {
  node "a" {}
  node "b" {
    warm = ["wan"]
  }
}
model "wan" {
  load = "30s"
}
gang "first" {
  gpus     = 8
  duration = "40s"
  model    = "wan"
}
gang "second" {
  at       = "5s"
  gpus     = 8
  duration = "40s"
  model    = "wan"
}
gang "third" {
  count    = 2
  at       = "90s"
  gpus     = 8
  duration = "40s"
  model    = "wan"
}
