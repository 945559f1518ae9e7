package router

import "testing"

func TestKebab(t *testing.T) {
	for in, want := range map[string]string{
		"Order":             "order",
		"ORDER":             "order",
		"order":             "order",
		"OrderCreated":      "order-created",
		"orderCreated":      "order-created",
		"order_line":        "order-line",
		"ORDER_LINE":        "order-line",
		"order-line":        "order-line",
		"order line":        "order-line",
		"HTTPServerStarted": "http-server-started",
		"ServerHTTP":        "server-http",
		"S3Upload":          "s3-upload",
		"Order2Created":     "order2-created",
		"order2created":     "order2created",
		"SHA256Sum":         "sha256-sum",
		"v2":                "v2",
		"A":                 "a",
		"ABC":               "abc",
		"ABc":               "a-bc",
		"__order__line__":   "order-line",
		"-Order-":           "order",
		"com.shop.Order":    "com-shop-order",
		"Shop::OrderLine":   "shop-order-line",
		`Shop\Order`:        "shop-order",
		"shop/order":        "shop-order",
		"order.line.added":  "order-line-added",
		"Größe":             "größe",
		"ÖlBestellt":        "öl-bestellt",
		"\u212Aelvin":       "\u212Aelvin", // the Kelvin sign does not become a k
		"İstanbul":          "İstanbul",
		"order$line":        "order$line",
		"":                  "",
		"_.-":               "",
		"\xff":              "\uFFFD",
	} {
		if got := kebab(in); got != want {
			t.Errorf("kebab(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestKebabEvent(t *testing.T) {
	for _, c := range []struct{ aggregate, event, want string }{
		{"Order", "OrderCreated", "created"},
		{"Order", "order.created.v1", "created"},
		{"Order", "created", "created"},
		{"ORDER", "ORDER_CREATED", "created"},
		{"order", "Created", "created"},
		{"Order", "order.created.v12", "created"},
		{"Order", "order.created.V2", "created"},

		// Dots inside an event type are hyphens: every placeholder is one part of the topic name.
		{"Order", "order.line.added", "line-added"},
		{"Order", "OrderLineAdded", "line-added"},
		{"OrderLine", "order.line.added", "added"},
		{"order.line", "OrderLineAdded", "added"},

		// The aggregate's name ends at the end of a word.
		{"Order", "OrderlineAdded", "orderline-added"},
		{"Order", "OrdersImported", "orders-imported"},
		{"Order", "Order2Created", "order2-created"},
		{"Order", "order.order.created", "order-created"},
		{"OrderLine", "OrderCreated", "order-created"},
		{"com.shop.Order", "OrderCreated", "order-created"},

		// Only `.v` and a number is a version, and only at the end.
		{"Order", "OrderCreatedV1", "created-v1"},
		{"Order", "created.v", "created-v"},
		{"Order", "created.v1a", "created-v1a"},
		{"Order", "created.1", "created-1"},
		{"Order", "v1.created", "v1-created"},
		{"Order", "created.v1.v2", "created-v1"},
		{"Order", "created.", "created"},

		// Kept whole where nothing would be left.
		{"Order", "Order", "order"},
		{"Order", "order.v1", "order-v1"},
		{"Order", ".v1", "v1"},
		{"Order", "v1", "v1"},
		{"Order", "Order.", "order"},

		{"", "OrderCreated", "order-created"},
		{"Order", "", ""},
		{"Order", "...", ""},
		{"Größe", "GrößeGeändert", "geändert"},
	} {
		if got := kebabEvent(kebab(c.aggregate), c.event); got != c.want {
			t.Errorf("event %q of aggregate %q = %q, want %q", c.event, c.aggregate, got, c.want)
		}
	}
}
