# A gang without checkpoints loses its node again and again. The second restart waits 5 s, and after the second retry there is no
# other.
cluster {
  node "n" {
    count  = 1
    fanout = { leaf = 1 }
  }
}
gang "poor" {
  gpus          = 8
  duration      = "100s"
  infra_retries = 2
}
event {
  at   = "10s"
  kind = "node_down"
  node = "n-0"
}
event {
  at   = "11s"
  kind = "node_up"
  node = "n-0"
}
event {
  at   = "40s"
  kind = "node_down"
  node = "n-0"
}
event {
  at   = "41s"
  kind = "node_up"
  node = "n-0"
}
event {
  at   = "70s"
  kind = "node_down"
  node = "n-0"
}
event {
  at   = "71s"
  kind = "node_up"
  node = "n-0"
}
