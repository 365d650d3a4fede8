# A node is lost, a gang is rejected, and one is cancelled.
cluster {
  node "n" {
    count  = 6
    fanout = { leaf = 3 }
  }
}
tier "interactive" {
  target_wait = "5s"
}
model "wan" {
  load = "10s"
}
gang "film" {
  gpus     = 40
  duration = "100s"
  model    = "wan"
  tenant   = "studio"
  checkpoint {
    every   = "20s"
    cost    = "1s"
    restore = "2s"
  }
}
gang "chat" {
  count    = 2
  at       = "1s"
  every    = "1s"
  tier     = "interactive"
  gpus     = 8
  duration = "30.5s"
}
gang "giant" {
  at       = "3s"
  gpus     = 64
  duration = "1s"
}
gang "dropped" {
  at       = "4s"
  gpus     = 48
  duration = "1s"
}
event {
  at   = "40s"
  kind = "cancel"
  gang = "dropped"
}
event {
  at   = "65s"
  kind = "node_down"
  node = "n-2"
}
