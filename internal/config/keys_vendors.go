package config

import "time"

func (s *settings) creditKeys() []Key {
	return []Key{
		{Name: "SIGNUP_BONUS_CREDITS", Default: "3", Min: 0, Max: 1000000, set: number(&s.Credit.SignupBonus, 1),
			Meaning: "Credits granted at the first sign-in. 0 grants none."},
		{Name: "SIGNUP_BONUS_PER_IDENTITY", Default: "always",
			set: into(&s.Credit.BonusPerIdentity, oneOf("always, once", false, true)),
			Meaning: "`always` grants the bonus to every new account. `once` grants it once to each identity at a provider: " +
				"a keyed hash of the identity outlives the account, so deleting the account and signing in again earns " +
				"nothing."},
		{Name: "SIGNUP_BONUS_KEY", Secret: true, set: into(&s.Credit.BonusKey, signingSecret),
			Meaning: "Key of that hash, at least 32 characters; required with `once`. Never change it: with another key, " +
				"deleted accounts could collect the bonus again."},
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
			Meaning: "Package name of the app in platform_a's store. Unless both required keys of platform_a are set, " +
				"its purchases answer `iap_unconfigured`."},
		{Name: "IAP_PLATFORM_A_SERVICE_ACCOUNT_JSON", Required: ForPlatformA, Secret: true,
			set:     into(&s.IAP.PlatformA.ServiceAccountJSON, secret),
			Meaning: "JSON key file of the service account, as text on one or more lines."},
		{Name: "IAP_PLATFORM_A_BASE_URL", Default: platformAURL,
			set: into(&s.IAP.PlatformA.BaseURL, httpURL),
			Meaning: "Address of platform_a's store. Change it only for tests: the keys that verify refund notifications then " +
				"come from there, too."},
		{Name: "IAP_PLATFORM_A_ALLOW_TEST", Default: "false", set: toggle(&s.IAP.PlatformA.AllowTest),
			Meaning: "`true` also grants credits for purchases of licence testers, who pay nothing. Only for tests of the " +
				"app."},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_AUDIENCE", set: text(&s.IAP.PlatformA.Notifications.Audience),
			Meaning: "Audience of the tokens in platform_a's refund notifications to " +
				"`/api/v2/stores/platform_a/notifications`, as configured in the push subscription. If it is blank, that " +
				"address answers 404, and the nightly query finds refunds within a day or two."},
		{Name: "IAP_PLATFORM_A_NOTIFICATION_SENDER", set: text(&s.IAP.PlatformA.Notifications.Sender),
			Meaning: "E-mail of the push subscription's service account; set both this and the audience, or neither."},
		{Name: "IAP_PLATFORM_B_ISSUER_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.IssuerID),
			Meaning: "Issuer id of the store's API key. Unless all four required keys of platform_b are set, its purchases " +
				"answer `iap_unconfigured`."},
		{Name: "IAP_PLATFORM_B_KEY_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.KeyID),
			Meaning: "Id of the store's API key."},
		{Name: "IAP_PLATFORM_B_PRIVATE_KEY", Required: ForPlatformB, Secret: true,
			set: into(&s.IAP.PlatformB.PrivateKey, pemText),
			Meaning: "The store's API key, a PEM private key on the curve P-256. Line breaks may be written as the two " +
				"characters `\\n`."},
		{Name: "IAP_PLATFORM_B_BUNDLE_ID", Required: ForPlatformB, set: text(&s.IAP.PlatformB.BundleID),
			Meaning: "Bundle id that every receipt must name."},
		{Name: "IAP_PLATFORM_B_ENV", Default: "production",
			set:     into(&s.IAP.PlatformB.Sandbox, oneOf("production, sandbox", false, true)),
			Meaning: "`production` or `sandbox`: the store of platform_b that verifies purchases."},
		{Name: "IAP_PLATFORM_B_BASE_URL", Default: "the address of the store named by IAP_PLATFORM_B_ENV", Computed: true,
			set:     into(&s.IAP.PlatformB.BaseURL, httpURL),
			Meaning: "Address of platform_b's store. Change it only for tests."},
		{Name: "IAP_PLATFORM_B_ROOT_CA_FILE", set: text(&s.rootCAFile),
			Meaning: "PEM file of another root certificate, accepted for receipts beside the store's own. Only for tests."},
	}
}

func (s *settings) eventKeys() []Key {
	return []Key{
		{Name: "WEBHOOK_URL", set: into(&s.Webhook.URL, webhookURL),
			Meaning: "Address of the web hook (Standard Webhooks 1.0) that reports the end of each job: https, or http on " +
				"loopback. Blank switches the web hook off."},
		{Name: "WEBHOOK_SECRET", Required: WithWebhook, Secret: true, set: into(&s.Webhook.Secret, webhookSecret),
			Meaning: "Secret that signs web hook requests: `whsec_` and 24 to 64 bytes in base64; `echo whsec_$(openssl " +
				"rand -base64 32)` makes one."},
		{Name: "WEBHOOK_SECRET_PREVIOUS", Secret: true, set: into(&s.Webhook.PreviousSecret, webhookSecret),
			Meaning: "Old secret. Requests carry a signature with each secret while receivers change to the new one."},
		{Name: "PUSH_PLATFORM_A_SERVICE_ACCOUNT", Secret: true, set: into(&s.Push.PlatformA.ServiceAccountJSON, secret),
			Meaning: "JSON key file, as text, of a service account that may send push messages for the app's project. Blank " +
				"switches push to platform_a off."},
		{Name: "PUSH_PLATFORM_A_BASE_URL", Default: "https://fcm.googleapis.com",
			set:     into(&s.Push.PlatformA.BaseURL, httpURL),
			Meaning: "Address of platform_a's push service. Change it only for tests."},
		{Name: "PUSH_PLATFORM_B_KEY", Required: ForPushB, Secret: true, set: into(&s.Push.PlatformB.Key, pemText),
			Meaning: "Key of platform_b's push service, a PEM private key on the curve P-256. Line breaks may be written " +
				"as the two characters `\\n`. Push to platform_b is off unless all four required keys are set."},
		{Name: "PUSH_PLATFORM_B_KEY_ID", Required: ForPushB, set: text(&s.Push.PlatformB.KeyID),
			Meaning: "Id of that key."},
		{Name: "PUSH_PLATFORM_B_TEAM_ID", Required: ForPushB, set: text(&s.Push.PlatformB.TeamID),
			Meaning: "Id of the team that owns the key."},
		{Name: "PUSH_PLATFORM_B_TOPIC", Required: ForPushB, set: text(&s.Push.PlatformB.Topic),
			Meaning: "Bundle id of the app that receives the pushes."},
		{Name: "PUSH_PLATFORM_B_BASE_URL", Default: "https://api.push.apple.com",
			set: into(&s.Push.PlatformB.BaseURL, httpURL),
			Meaning: "Address of platform_b's push service; `https://api.sandbox.push.apple.com` for development builds " +
				"of the app. Plain http works on loopback only, for tests."},
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
				"stores get 30 s at most; the bucket has limits of its own. A web hook or push gets 15 s whatever these " +
				"HTTP_* keys say."},
		{Name: "HTTP_SOCKET_TIMEOUT_MS", Default: "600000", Min: 1, Max: maxDayMs,
			set: number(&s.Outbound.SocketTimeout, time.Millisecond),
			Meaning: "Maximum time without data on a connection to another service, in milliseconds. Identity providers " +
				"and app stores get 30 s at most, the bucket 10 s."},
	}
}
