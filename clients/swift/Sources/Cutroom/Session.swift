import Foundation

public typealias Session = AuthResponse

/// The signed-in session: kept in the store, renewed in time, by the server's clock.
actor Sessions {
    private static let key = "cutroom.session"
    /// The store's key of the first user: the one signed in when this version first runs, else the first to sign in.
    static let firstUser = "cutroom.firstUser"
    private let store: any Store
    private let now: @Sendable () -> Date
    private var current: Session?
    private var loaded = false
    private var renewing: Task<Void, Never>?
    /// When a renewal last failed. Otherwise every request would try again, and the server limits renewals.
    private var failed = Date.distantPast
    /// The server's clock minus this device's, in seconds.
    private var skew: TimeInterval = 0
    private let dates: DateFormatter

    init(store: any Store, now: @escaping @Sendable () -> Date) {
        self.store = store
        self.now = now
        dates = DateFormatter()
        dates.locale = Locale(identifier: "en_US_POSIX")
        dates.timeZone = TimeZone(identifier: "GMT")
        dates.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    }

    /// The current session, nil if nobody is signed in.
    func get() throws -> Session? {
        if !loaded {
            current = try store.load(Session.self, Self.key)
            loaded = true
        }
        return current
    }

    func keep(_ session: Session?) throws {
        if let user = try (get() ?? session)?.user.sub, try store.load(String.self, Self.firstUser) == nil {
            try store.save(Self.firstUser, user)
        }
        current = session
        try store.save(Self.key, session)
    }

    /// Ends the session with this token. False if a renewal or another sign-in has replaced it.
    func end(token: String) throws -> Bool {
        guard try get()?.accessToken == token else { return false }
        try keep(nil)
        return true
    }

    /// Learns the server's clock from the `Date` header of an answer.
    func heard(_ date: String?) {
        if let at = date.flatMap(dates.date(from:)) { skew = at.timeIntervalSince(now()) }
    }

    /// The access token. Renews it first when less than half of a week is left; only one renewal runs at a time. Throws
    /// a `CutroomError` of status 401 if a `user` is named and is not the one who is signed in.
    func token(of user: String?, refresh: @escaping @Sendable (Session) async throws -> Session) async throws -> String? {
        if let session = try get() {
            let left = Double(session.expiresAt) / 1000 - now().timeIntervalSince1970 - skew
            if left < Double(Contract.renewBeforeSec), abs(now().timeIntervalSince(failed)) > 60 {
                let renewal = renewing ?? Task { await self.renew(session, refresh) }
                renewing = renewal
                try await end(of: renewal)
            }
        }
        if let user, current?.user.sub != user { throw CutroomError.signedOut }
        return current?.accessToken
    }

    /// Waits for a renewal, which goes on if the waiting task is cancelled.
    private func end(of renewal: Task<Void, Never>) async throws {
        let (waiting, end) = AsyncStream<Void>.makeStream()
        Task {
            await renewal.value
            end.finish()
        }
        for await _ in waiting {}
        try Task.checkCancellation()
    }

    private func renew(_ session: Session, _ refresh: @Sendable (Session) async throws -> Session) async {
        // If it fails, the old token may still be valid. If it is not, the next answer says so.
        let fresh = try? await refresh(session)
        if fresh == nil { failed = now() }
        // A sign-out or another sign-in in the meantime wins.
        if let fresh, current == session { try? keep(fresh) }
        renewing = nil
    }
}
