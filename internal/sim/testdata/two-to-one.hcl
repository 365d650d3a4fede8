# Two tenants of weights 2 and 1 keep the cluster full: one gets twice what the other gets.
cluster {
  node "n" {
    count  = 3
    fanout = { leaf = 3 }
  }
}
tenant "a" {
  weight = 2
}
gang "a" {
  count    = 24
  tenant   = "a"
  gpus     = 8
  duration = "30s"
}
gang "b" {
  count    = 12
  tenant   = "b"
  gpus     = 8
  duration = "30s"
}
