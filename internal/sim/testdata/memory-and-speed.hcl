# Gangs that need large GPUs wait for them while small ones idle; a model runs at half speed on the small ones.
cluster {
  node "l" {
    gpu        = "L40S-48GB"
    gpu_memory = "48GiB"
  }
  node "h" {}
}
model "wan" {
  speed = { "L40S-48GB" = 0.5 }
}
gang "large" {
  count      = 2
  gpus       = 8
  duration   = "40s"
  model      = "wan"
  gpu_memory = "60GiB"
}
gang "slower" {
  at       = "5s"
  gpus     = 8
  duration = "40s"
  model    = "wan"
  gpu      = "L40S-48GB"
}
gang "too-large" {
  at         = "6s"
  gpus       = 8
  duration   = "40s"
  gpu        = "L40S-48GB"
  gpu_memory = "60GiB"
}
