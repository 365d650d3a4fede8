http {
  address = "127.0.0.1:1"
}
http {
  address = "127.0.0.1:2"
}
blob {
}
