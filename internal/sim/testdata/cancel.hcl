# Whoever is cancelled while it runs frees its GPUs for the next in that second; whoever is cancelled while it waits never starts.
cluster {
  node "n" {
    count  = 1
    fanout = { leaf = 1 }
  }
}
gang "runs" {
  gpus     = 8
  duration = "900s"
}
gang "next" {
  at       = "5s"
  gpus     = 8
  duration = "60s"
}
gang "gone" {
  at       = "6s"
  gpus     = 8
  duration = "60s"
}
event {
  at   = "20s"
  kind = "cancel"
  gang = "gone"
}
event {
  at   = "40s"
  kind = "cancel"
  gang = "runs"
}
