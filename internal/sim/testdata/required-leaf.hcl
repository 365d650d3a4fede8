# There are GPUs enough, but no leaf with two nodes in order. The gang waits, says so, and is never spread; it starts as soon as a leaf
# is whole again.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 2 }
  }
}
gang "pair" {
  at       = "5s"
  gpus     = 16
  duration = "30s"
  topology {
    require = "leaf"
  }
}
event {
  at   = "1s"
  kind = "drain"
  node = "n-1"
}
event {
  at   = "1s"
  kind = "drain"
  node = "n-3"
}
event {
  at   = "60s"
  kind = "undrain"
  node = "n-3"
}
