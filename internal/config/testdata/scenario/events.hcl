cluster {
  node "n" {
    count = 2
  }
}
gang "A" {
  count    = 2
  gpus     = 8
  duration = "60s"
}
event {
  at   = "30s"
  kind = "node_reboot"
  node = "n-1"
}
event {
  kind = "node_down"
  node = "n"
}
event {
  at   = "30s"
  kind = "gpu_bad"
  node = "n-0"
  gpu  = 8
}
event {
  at     = "30s"
  kind   = "slow"
  node   = "n-0"
  factor = 0
}
event {
  at   = "30s"
  kind = "spot_notice"
  node = "n-7"
}
event {
  at   = "-30s"
  kind = "cancel"
  gang = "A"
  node = "n-0"
}
