gang "Sea Side" {
  template      = ""
  gpus          = 12
  gpus_per_node = 8
  infra_retries = 1000
  reuse         = "sometimes"
}
