# A node becomes slow, of which the engine hears nothing: it sees an estimate overrun.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "long" {
  gpus     = 8
  duration = "100s"
}
gang "wide" {
  at       = "5s"
  gpus     = 16
  duration = "30s"
}
event {
  at     = "40s"
  kind   = "slow"
  node   = "n-0"
  factor = 2.0
}
