# Small gangs arrive a little faster than they can be run. A wide one holds a start behind those that are older, and keeps it.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 4 }
  }
}
gang "stream" {
  count    = 50
  every    = "7s"
  gpus     = 8
  duration = "30s"
}
gang "wide" {
  at       = "100s"
  gpus     = 32
  duration = "30s"
}
