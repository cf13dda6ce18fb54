package config

import "time"

func (s *settings) creditKeys() []Key {
	return []Key{
		{Name: "SIGNUP_BONUS_CREDITS", Default: "3", Min: 0, Max: 1000000, set: number(&s.Credit.SignupBonus, 1),
			Meaning: "Credits granted at the first sign-in. 0 grants none."},
		{Name: "SIGNUP_BONUS_PER_IDENTITY", Default: "always",
			set: into(&s.Credit.BonusPerIdentity, oneOf("always, once", false, true)),
			Meaning: "`always` grants the bonus to every new account. `once` grants it once to a person of a provider: a " +
				"keyed hash of who had it outlives the account's deletion, so that deleting and signing in again earns " +
				"nothing."},
		{Name: "SIGNUP_BONUS_KEY", Secret: true, set: into(&s.Credit.BonusKey, signingSecret),
			Meaning: "Key of that hash, at least 32 characters; required with `once`. Never change it: under another key " +
				"everybody gets the bonus once more."},
		{Name: "ADMIN_GRANT_DAILY_CAP", Default: "1000", Min: 0, Max: 1000000000,
			set:     number(&s.Credit.AdminGrantDailyCap, 1),
			Meaning: "Credits that one admin may grant in any 24 hours."},
		{Name: "CREDIT_PRODUCTS", Default: "credits.10=10,credits.50=50,credits.150=150",
			set:     into(&s.Credit.Products, products),
			Meaning: "The product catalogue: comma-separated `productId=credits`, with 1 to 1000000 credits each."},
	}
}

func (s *settings) storeKeys() []Key {
	return []Key{
		{Name: "IAP_PLATFORM_A_PACKAGE_NAME", Required: ForPlatformA, set: text(&s.IAP.PlatformA.PackageName),
			Meaning: "Package name of the app in platform_a's store. Unless both keys of platform_a are set its " +
				"purchases answer `iap_unconfigured`."},
		{Name: "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", Required: ForPlatformA, Secret: true,
			set:     into(&s.IAP.PlatformA.ServiceAccountJSON, secret),
			Meaning: "The service account's JSON key file, as text; one line will do."},
		{Name: "IAP_PLATFORM_A_BASE_URL", Default: "https://androidpublisher.googleapis.com",
			set:     into(&s.IAP.PlatformA.BaseURL, httpURL),
			Meaning: "Address of platform_a's store. Changed for tests only."},
		{Name: "IAP_PLATFORM_A_ALLOW_TEST", Default: "false", set: toggle(&s.IAP.PlatformA.AllowTest),
			Meaning: "`true` grants credits for purchases of licence testers too, who pay nothing. For tests of the app " +
				"only."},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", set: text(&s.IAP.PlatformA.Notifications.Audience),
			Meaning: "Audience of the token with which platform_a's refund notifications are pushed to " +
				"`/api/v2/stores/platform_a/notifications`, as set for the push subscription. Blank: that address answers " +
				"404, and refunds are noticed within a day or two."},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_SENDER", set: text(&s.IAP.PlatformA.Notifications.Sender),
			Meaning: "E-mail of the service account that the push subscription signs as; needed with the audience."},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_KEYS_URL", Default: "https://www.googleapis.com/oauth2/v3/certs",
			set:     into(&s.IAP.PlatformA.Notifications.KeysURL, httpURL),
			Meaning: "Address of the public keys of such tokens. Changed for tests only."},
		{Name: "IAP_PLATFORM_B_ISSUER_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.IssuerID),
			Meaning: "Issuer id of the store's API key. Unless all four keys of platform_b are set its purchases answer " +
				"`iap_unconfigured`."},
		{Name: "IAP_PLATFORM_B_KEY_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.KeyID),
			Meaning: "Id of the store's API key."},
		{Name: "IAP_PLATFORM_B_PRIVATE_KEY", Required: ForPlatformB, Secret: true,
			set: into(&s.IAP.PlatformB.PrivateKey, pemText),
			Meaning: "The API key itself, a PEM private key on the curve P-256. Line breaks may be written as the two " +
				"characters `\\n`."},
		{Name: "IAP_PLATFORM_B_BUNDLE_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.BundleID),
			Meaning: "Bundle id that every receipt must name."},
		{Name: "IAP_PLATFORM_B_ENV", Default: "production",
			set:     into(&s.IAP.PlatformB.Sandbox, oneOf("production, sandbox", false, true)),
			Meaning: "`production` or `sandbox`: which of platform_b's stores is asked and believed."},
		{Name: "IAP_PLATFORM_B_BASE_URL", Default: "the address of the store named by IAP_PLATFORM_B_ENV", Computed: true,
			set:     into(&s.IAP.PlatformB.BaseURL, httpURL),
			Meaning: "Address of platform_b's store. Changed for tests only."},
		{Name: "IAP_PLATFORM_B_ROOT_CA_FILE", set: text(&s.rootCAFile),
			Meaning: "PEM file with a further root that receipts may be signed under, beside the store's own. For tests " +
				"only."},
	}
}

func (s *settings) eventKeys() []Key {
	return []Key{
		{Name: "WEBHOOK_URL", set: into(&s.Webhook.URL, webhookURL),
			Meaning: "Address that is told, as of Standard Webhooks 1.0, when a job has ended: https, or http on " +
				"loopback. Blank switches the web hook off."},
		{Name: "WEBHOOK_SECRET", Required: WithWebhook, Secret: true, set: into(&s.Webhook.Secret, webhookSecret),
			Meaning: "Secret that signs web hooks: `whsec_` and 24 to 64 bytes in base64; `echo whsec_$(openssl rand " +
				"-base64 32)` makes one."},
		{Name: "WEBHOOK_SECRET_PREVIOUS", Secret: true, set: into(&s.Webhook.PreviousSecret, webhookSecret),
			Meaning: "Secret that signs web hooks as well, while receivers change over to a new WEBHOOK_SECRET."},
		{Name: "PUSH_PLATFORM_A_SERVICE_ACCOUNT", Secret: true, set: into(&s.Push.PlatformA.ServiceAccountJSON, secret),
			Meaning: "JSON key file, as text, of a service account that may send messages of the app's project. Blank " +
				"switches push to platform_a off."},
		{Name: "PUSH_PLATFORM_A_BASE_URL", Default: "https://fcm.googleapis.com",
			set:     into(&s.Push.PlatformA.BaseURL, httpURL),
			Meaning: "Address of platform_a's push service. Changed for tests only."},
		{Name: "PUSH_PLATFORM_B_KEY", Required: ForPushB, Secret: true, set: into(&s.Push.PlatformB.Key, pemText),
			Meaning: "Key of platform_b's push service, a PEM private key on the curve P-256. Line breaks may be written " +
				"as the two characters `\\n`. Unless all four keys are set push to platform_b is off."},
		{Name: "PUSH_PLATFORM_B_KEY_ID", Required: ForPushB, set: text(&s.Push.PlatformB.KeyID),
			Meaning: "Id of that key."},
		{Name: "PUSH_PLATFORM_B_TEAM_ID", Required: ForPushB, set: text(&s.Push.PlatformB.TeamID),
			Meaning: "Id of the team whose key it is."},
		{Name: "PUSH_PLATFORM_B_TOPIC", Required: ForPushB, set: text(&s.Push.PlatformB.Topic),
			Meaning: "Bundle id of the app that is notified."},
		{Name: "PUSH_PLATFORM_B_BASE_URL", Default: "https://api.push.apple.com",
			set: into(&s.Push.PlatformB.BaseURL, httpURL),
			Meaning: "Address of platform_b's push service; `https://api.sandbox.push.apple.com` for development builds " +
				"of the app. http on loopback only, for tests."},
		{Name: "PUSH_PLATFORM_B_ROOT_CA_FILE", set: text(&s.pushCAFile),
			Meaning: "PEM file with further roots that the certificate of platform_b's push service may be signed under. " +
				"For tests only."},
	}
}

func (s *settings) outboundKeys() []Key {
	return []Key{
		{Name: "HTTP_CONNECT_TIMEOUT_MS", Default: "120000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.ConnectTimeout, time.Millisecond),
			Meaning: "Time to connect to the separation provider, in milliseconds. Identity providers and app stores get " +
				"30 s at most."},
		{Name: "HTTP_REQUEST_TIMEOUT_MS", Default: "600000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.RequestTimeout, time.Millisecond),
			Meaning: "Time for a whole request to the separation provider, in milliseconds. Identity providers and app " +
				"stores get 30 s at most; bucket, web hook and push services have limits of their own."},
		{Name: "HTTP_SOCKET_TIMEOUT_MS", Default: "600000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.SocketTimeout, time.Millisecond),
			Meaning: "Longest silence on a connection to another service, in milliseconds. At most 30 s from identity " +
				"providers and app stores, and 10 s from the bucket."},
	}
}
