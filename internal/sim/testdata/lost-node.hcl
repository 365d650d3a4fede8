# A gang over both nodes loses one, and waits for it in its old place: small gangs that came later use the other node meanwhile, and
# none of them starts once the lost one is back, before the gang has.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "pair" {
  gpus     = 16
  duration = "600s"
}
gang "filler" {
  count    = 4
  every    = "1s"
  at       = "5s"
  gpus     = 8
  duration = "100s"
}
event {
  at   = "50s"
  kind = "node_down"
  node = "n-1"
}
event {
  at   = "300s"
  kind = "node_up"
  node = "n-1"
}
