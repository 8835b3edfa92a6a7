//! Asking and answering in the local network; the messages are `bailey_session::lan`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use bailey_session::lan::{Asked, GROUP_V4, GROUP_V6, MAX_MESSAGE, PORT, Service};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Links that are asked and answered on, of each family.
const MAX_LINKS: usize = 16;
/// A question is asked again this long after: frames of a group are lost easily.
const AGAIN: Duration = Duration::from_secs(1);
/// Answers that may wait.
const QUEUE: usize = 8;
/// Answers in a second, over all who ask.
const ANSWERS_A_SECOND: u32 = 20;

/// A link of this machine that carries multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// By our address on it.
    V4(Ipv4Addr),
    /// By its number.
    V6(u32),
}

/// Answers, for as long as it is not dropped.
#[derive(Debug)]
pub(crate) struct Responder {
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Responder {
    /// Answers that the labels are at this port, on every link where that can be had.
    ///
    /// # Errors
    /// There is no link, or none that lets us join the group.
    pub(crate) fn start(
        links: &[Link],
        service: Service,
        labels: &watch::Receiver<Vec<String>>,
        port: u16,
    ) -> io::Result<Self> {
        let mut tasks = Vec::new();
        let mut failed = None;
        for family in [Family::V4, Family::V6] {
            match family.listen(links) {
                Ok(Some(socket)) => {
                    let serve = serve(socket, service, labels.clone(), port);
                    tasks.push(tokio::spawn(serve).abort_handle());
                }
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            _ if !tasks.is_empty() => Ok(Self { tasks }),
            Some(error) => Err(error),
            None => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        }
    }
}

async fn serve(
    socket: UdpSocket,
    service: Service,
    labels: watch::Receiver<Vec<String>>,
    port: u16,
) {
    let mut buffer = [0; MAX_MESSAGE + 1];
    let (mut second, mut answers) = (Instant::now(), 0);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            // An error of an earlier answer; the next one is heard.
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, answers) = (Instant::now(), 0);
        }
        let ours =
            |asked: &Asked| asked.service == service && labels.borrow().contains(&asked.label);
        // Who asks from the port itself wants the whole group to hear it.
        let Some(asked) = Asked::from_bytes(&buffer[..length])
            .filter(|asked| ours(asked) && from.port() != PORT && answers < ANSWERS_A_SECOND)
        else {
            continue;
        };
        answers += 1;
        if let Some(answer) = asked.answer(port) {
            // Whoever asked asks again.
            let _lost = socket.send_to(&answer, from).await;
        }
    }
}

/// Asks for this label on every link until the deadline; what answers comes out once
/// an address. The end of the channel is the end of the asking.
pub(crate) fn find(
    links: &[Link],
    asked: &Asked,
    until: Instant,
) -> io::Result<mpsc::Receiver<SocketAddr>> {
    let question = asked
        .to_bytes()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (found, answers) = mpsc::channel(QUEUE);
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut begun = false;
    for link in links.iter().take(2 * MAX_LINKS) {
        match link.asker() {
            Ok((socket, group)) => {
                begun = true;
                let (asked, question) = (asked.clone(), question.clone());
                tokio::spawn(ask(socket, group, asked, question, until, found.clone()));
            }
            Err(error) => failed = error,
        }
    }
    if begun { Ok(answers) } else { Err(failed) }
}

async fn ask(
    socket: UdpSocket,
    group: SocketAddr,
    asked: Asked,
    question: Vec<u8>,
    until: Instant,
    found: mpsc::Sender<SocketAddr>,
) {
    let mut buffer = [0; MAX_MESSAGE + 1];
    while Instant::now() < until {
        // A link that is down just now may come up.
        let _lost = socket.send_to(&question, group).await;
        let again = (Instant::now() + AGAIN).min(until);
        loop {
            let received = tokio::select! {
                () = found.closed() => return,
                received = timeout_at(again, socket.recv_from(&mut buffer)) => received,
            };
            match received {
                Err(_) => break,
                Ok(Err(_)) => {
                    sleep_until(again).await;
                    break;
                }
                Ok(Ok((length, from))) => {
                    if let Some(at) = asked.answered(&buffer[..length], from) {
                        // More than fit are not needed.
                        let _full = found.try_send(at);
                    }
                }
            }
        }
    }
}

/// Answers those of the account who look for this device, for as long as it is not
/// dropped.
#[derive(Debug)]
pub struct Nearby {
    labels: watch::Sender<Vec<String>>,
    _responder: Responder,
}

impl Nearby {
    /// Answers on these links that this device's sessions are at this port.
    ///
    /// # Errors
    /// There is no link, or none that lets us join the group.
    pub fn start(links: &[Link], labels: Vec<String>, port: u16) -> io::Result<Self> {
        let (labels, watched) = watch::channel(labels);
        let responder = Responder::start(links, Service::Member, &watched, port)?;
        Ok(Self {
            labels,
            _responder: responder,
        })
    }

    /// Answers to these labels from now on.
    pub fn answer_to(&self, labels: Vec<String>) {
        self.labels.send_replace(labels);
    }
}

/// Looks for a device by its label for a while. The first that answers comes out.
///
/// # Errors
/// There is no link that can be asked on, or no random bytes.
pub async fn look_for(
    links: &[Link],
    label: String,
    patience: Duration,
) -> io::Result<Option<SocketAddr>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::from)?;
    let asked = Asked {
        id: u16::from_be_bytes(id),
        service: Service::Member,
        label,
    };
    Ok(find(links, &asked, Instant::now() + patience)?.recv().await)
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// A socket that hears the group on every such link; `None` if there is none.
    fn listen(self, links: &[Link]) -> io::Result<Option<UdpSocket>> {
        let (family, group): (_, SocketAddr) = match self {
            Self::V4 => (AddressFamily::INET, (GROUP_V4, PORT).into()),
            Self::V6 => (AddressFamily::INET6, (GROUP_V6, PORT).into()),
        };
        let same = |link: &&Link| match self {
            Self::V4 => matches!(link, Link::V4(_)),
            Self::V6 => matches!(link, Link::V6(_)),
        };
        let links: Vec<&Link> = links.iter().filter(same).take(MAX_LINKS).collect();
        if links.is_empty() {
            return Ok(None);
        }
        let socket = datagram(family)?;
        // The machine's own responder has the port too. Bound to the group, this
        // socket takes nothing that is sent to that one alone.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if matches!(self, Self::V6) {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &group)?;
        let mut joined = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        for link in links {
            let join = match link {
                Link::V4(own) => socket.join_multicast_v4(&GROUP_V4, own),
                Link::V6(index) => socket.join_multicast_v6(&GROUP_V6, *index),
            };
            if join.is_ok() || joined.is_err() {
                joined = join;
            }
        }
        joined?;
        Ok(Some(UdpSocket::from_std(socket)?))
    }
}

impl Link {
    /// A socket that asks on this link alone, and the group there.
    fn asker(self) -> io::Result<(UdpSocket, SocketAddr)> {
        let (socket, group): (_, SocketAddr) = match self {
            Self::V4(own) => {
                let socket = datagram(AddressFamily::INET)?;
                sockopt::set_ip_multicast_if(&socket, &own)?;
                bind(&socket, &SocketAddr::new(IpAddr::V4(own), 0))?;
                (socket, (GROUP_V4, PORT).into())
            }
            Self::V6(index) => {
                let socket = datagram(AddressFamily::INET6)?;
                sockopt::set_ipv6_v6only(&socket, true)?;
                bind(&socket, &SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))?;
                let group = SocketAddrV6::new(GROUP_V6, PORT, 0, index);
                (socket, group.into())
            }
        };
        Ok((UdpSocket::from_std(socket)?, group))
    }
}

fn datagram(family: AddressFamily) -> io::Result<std::net::UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::DGRAM, flags, None)?.into())
}
