# A gang runs longer than it may, over two attempts: it has failed, and what it did was of no use.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "long" {
  gpus     = 16
  duration = "100s"
  max_run  = "80s"
  checkpoint {
    every   = "10s"
    cost    = "1s"
    restore = "2s"
  }
}
event {
  at   = "55s"
  kind = "node_down"
  node = "n-1"
}
event {
  at   = "60s"
  kind = "node_up"
  node = "n-1"
}
