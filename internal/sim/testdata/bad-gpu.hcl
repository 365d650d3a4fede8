# A gang leaves a GPU that went bad within the second, and goes on from its checkpoint on the other node; the seven good GPUs of the
# first one serve others, without the bad one.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
gang "film" {
  gpus     = 8
  duration = "400s"
  checkpoint {
    every   = "20s"
    cost    = "0s"
    restore = "0s"
  }
}
gang "four" {
  at       = "150s"
  gpus     = 4
  duration = "50s"
}
gang "three" {
  at       = "151s"
  gpus     = 3
  duration = "50s"
}
event {
  at   = "95s"
  kind = "gpu_bad"
  node = "n-0"
  gpu  = 2
}
