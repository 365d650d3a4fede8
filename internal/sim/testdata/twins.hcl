# Two gangs as wide as the cluster arrive at once. One runs whole, and the other holds nothing until it is done.
cluster {
  node "n" {
    count  = 6
    fanout = { leaf = 3 }
  }
}
gang "twin" {
  count    = 2
  gpus     = 48
  duration = "60s"
}
