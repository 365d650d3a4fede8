# A tenant that has used nothing goes before the many gangs of one that fills the cluster.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "many" {
  count    = 20
  tenant   = "a"
  gpus     = 8
  duration = "30s"
}
gang "single" {
  at       = "45s"
  tenant   = "b"
  gpus     = 8
  duration = "30s"
}
