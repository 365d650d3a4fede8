http {
  address: "127.0.0.1:1"
}
