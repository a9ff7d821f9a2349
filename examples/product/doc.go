// Command product is the smallest saga that is worth one: a product is registered in two steps, and the second one fails
// the first time. It shows what is kept in between, and that the same request again does only what is missing.
//
//	go run ./examples/product
//
// registration.go is the saga, services.go what it calls, main.go the four requests.
package main
